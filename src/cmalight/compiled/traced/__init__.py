"""Native loops by torch's compiler, for models with operations that are not written out here."""
