"""Results as tables, JSON documents, HTML, arrays with names, and files."""
