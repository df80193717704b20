"""Notices of pending requests: their rules, commands, webhooks, pushes, and `hubbub notify` beside a hub."""
