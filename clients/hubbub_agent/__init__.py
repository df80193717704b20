"""An agent: it works on the inbox and answers what its rules allow. All else is left to people."""
