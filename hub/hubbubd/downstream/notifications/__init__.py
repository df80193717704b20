"""What hosts are notified of outside their requests: changed lists and resources, log messages."""
