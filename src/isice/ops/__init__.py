"""Operations on tensors. One module per operation: a reference, an autograd Function if needed, a public function."""
