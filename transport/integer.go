package transport

// Integer returns value as an int64, and whether value is a signed integer of Go, or an
// unsigned one that fits into an int64. AMQP clients return properties as values of the
// type that the sender chose.
func Integer(value any) (n int64, ok bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case int:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint8:
		return int64(v), true
	default:
		return 0, false
	}
}
