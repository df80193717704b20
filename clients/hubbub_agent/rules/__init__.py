"""The file of rules: which pending requests are answered, how, and within which limits."""
