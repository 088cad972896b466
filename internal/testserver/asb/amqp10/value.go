package amqp10

import "fmt"

// The Go types of values, as the decoder returns them and the encoder takes them:
//
//	null        nil                    char       Char
//	boolean     bool                   timestamp  time.Time (milliseconds, UTC)
//	ubyte       uint8                  uuid       UUID
//	ushort      uint16                 binary     []byte
//	uint        uint32                 string     string
//	ulong       uint64                 symbol     Symbol
//	byte        int8                   list       List
//	short       int16                  map        Map
//	int         int32                  array      Array
//	long        int64                  described  Described
//	float       float32                decimal32  Decimal32
//	double      float64                decimal64  Decimal64
//	                                   decimal128 Decimal128
type (
	// Symbol is a name from a constrained domain, in ASCII.
	Symbol string

	// Char is one character of UTF-32.
	Char uint32

	// UUID is a UUID in the byte order of RFC 4122.
	UUID [16]byte

	// Decimal32 is an IEEE 754 decimal number, which stays encoded.
	Decimal32 [4]byte

	// Decimal64 is an IEEE 754 decimal number, which stays encoded.
	Decimal64 [8]byte

	// Decimal128 is an IEEE 754 decimal number, which stays encoded.
	Decimal128 [16]byte

	// List is a sequence of values of any types.
	List []any

	// Array is a sequence of values that have the same type.
	Array []any

	// Map is a sequence of keys and values in the order of the encoding.
	Map []Pair

	// Pair is an entry of a Map.
	Pair struct{ Key, Value any }

	// Described is a value with a descriptor, which is usually a Symbol or a uint64.
	Described struct{ Descriptor, Value any }
)

// String returns the UUID in the usual form.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Get returns the value of the first entry with the key, a Symbol or a string, or nil.
func (m Map) Get(key string) any {
	for _, p := range m {
		switch k := p.Key.(type) {
		case Symbol:
			if string(k) == key {
				return p.Value
			}
		case string:
			if k == key {
				return p.Value
			}
		}
	}
	return nil
}

// Error is an error that one peer reports to the other. As a Go error it is the reason
// for the end of a link, a session or a connection.
type Error struct {
	Condition   Symbol
	Description string
	Info        Map
}

// Error returns the condition and the description.
func (e *Error) Error() string {
	if e.Description == "" {
		return string(e.Condition)
	}
	return string(e.Condition) + ": " + e.Description
}

// Errorf returns an Error with a formatted description.
func Errorf(condition Symbol, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// Conditions of AMQP 1.0, part 2, section 2.8.
const (
	ErrDecode                Symbol = "amqp:decode-error"
	ErrIllegalState          Symbol = "amqp:illegal-state"
	ErrInternal              Symbol = "amqp:internal-error"
	ErrInvalidField          Symbol = "amqp:invalid-field"
	ErrNotAllowed            Symbol = "amqp:not-allowed"
	ErrNotFound              Symbol = "amqp:not-found"
	ErrNotImplemented        Symbol = "amqp:not-implemented"
	ErrResourceDeleted       Symbol = "amqp:resource-deleted"
	ErrResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	ErrUnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	ErrConnectionForced      Symbol = "amqp:connection:forced"
	ErrFraming               Symbol = "amqp:connection:framing-error"
	ErrHandleInUse           Symbol = "amqp:session:handle-in-use"
	ErrUnattachedHandle      Symbol = "amqp:session:unattached-handle"
	ErrDetachForced          Symbol = "amqp:link:detach-forced"
	ErrMessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	ErrTransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
)
