"""What is known of an agent's sessions: their state, their transcript, their turns, and what outlives the process."""
