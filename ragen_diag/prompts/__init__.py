"""What a dump tells of a row's prompt -> the token ids that the model saw before its response.

Knows a tokenizer and its chat template; no model, no table and no metrics.
"""
