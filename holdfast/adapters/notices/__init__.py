"""What happens, told to other systems and to people."""
