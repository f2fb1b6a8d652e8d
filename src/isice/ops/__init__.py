"""The maths. One file is one operation: a reference, an autograd Function where it pays, a public function."""
