"""Small tools without a domain word in them."""
