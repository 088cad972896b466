package transport

// Integer returns a number of any of the signed types of Go, or of the unsigned ones that an int64 has room for, and whether value is one.
// The clients of AMQP return properties as values of the type that the sender chose.
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
