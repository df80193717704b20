"""The configuration of one server: its options, references and secrets."""
