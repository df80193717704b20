"""What several frontends share: schemas, results and records as people read them, and certificates."""
