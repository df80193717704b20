"""What one operating system has and another has not: each behind a function that has a portable form.

Nothing else asks `sys.platform`. Linux has the strongest form; macOS and other POSIX systems have the portable one, and
Windows what a client needs of a hub that runs elsewhere. A form is chosen when a module is imported, so that it costs
nothing later.

    processes    of servers: found, held and ended; what they started, too
    reaper       the program that starts servers and ends all that they started (Linux)
    portable_reaper   the same for other POSIX systems
    files        made durable, locked, without a name
    figures      of this process: memory, descriptors
    clocks       suspended time, and whether a time service keeps the clock
    sockets      what the other end has acknowledged; Unix sockets
    pipes        that this process was given
    directories  where programs keep their files
"""

import sys
from typing import Final

NAME: Final = sys.platform
"""The name of the operating system, as `sys.platform` has it."""
