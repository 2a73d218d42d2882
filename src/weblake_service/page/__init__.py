"""What was fetched becomes a document: text, main content, markdown, links, metadata. No sockets here."""
