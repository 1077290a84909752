"""Several processes that train one model: who they are, what they exchange, what each of them holds."""
