"""An OpenAI-compatible server over an engine: `app.create_app` makes it, `serving` runs it."""
