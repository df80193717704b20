"""Examples are not timed: the machine may be busy."""

from hypothesis import settings

settings.register_profile("core", deadline=None)
settings.load_profile("core")
