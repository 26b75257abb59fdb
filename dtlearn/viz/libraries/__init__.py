"""What libraries send, from their stored runs."""
