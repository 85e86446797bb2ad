"""What people ask for, in SQLite or PostgreSQL."""
