package s3bodies

// SetMaxBytes changes the size of the largest body that Get returns, which is too large for a test.
func (s *Store) SetMaxBytes(n int64) { s.maxBytes = n }
