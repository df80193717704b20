"""Agent: answers pending requests that its rules allow, and leaves the rest to people."""
