"""Small tools without domain terms."""
