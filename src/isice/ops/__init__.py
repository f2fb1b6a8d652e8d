"""Operations on tensors, one module each: reference, autograd Function, public function."""
