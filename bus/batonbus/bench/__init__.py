"""What the bus does on this machine, measured on a bus in a temporary folder."""
