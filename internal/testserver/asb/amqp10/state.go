package amqp10

import "fmt"

// State is the state of a delivery: Accepted, Rejected, Released, Modified, Received or
// OtherState.
type State interface {
	appendTo(b []byte) ([]byte, error)
}

type (
	// Accepted is the outcome of a delivery that was processed.
	Accepted struct{}

	// Rejected is the outcome of a delivery that is invalid.
	Rejected struct{ Error *Error }

	// Released is the outcome of a delivery that was not and will not be acted upon.
	Released struct{}

	// Modified is the outcome of a delivery that was modified and not processed.
	Modified struct {
		DeliveryFailed     bool
		UndeliverableHere  bool
		MessageAnnotations Map
	}

	// Received says how much of a message has arrived.
	Received struct {
		SectionNumber uint32
		SectionOffset uint64
	}

	// OtherState is a state that another specification defines, such as those of transactions.
	OtherState struct{ Value Described }
)

func (Accepted) appendTo(b []byte) ([]byte, error) { return beginComposite(b, codeAccepted).end() }

func (Released) appendTo(b []byte) ([]byte, error) { return beginComposite(b, codeReleased).end() }

func (s Rejected) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeRejected)
	w.error(s.Error)
	return w.end()
}

func (s Modified) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeModified)
	w.flag(s.DeliveryFailed)
	w.flag(s.UndeliverableHere)
	w.fields(s.MessageAnnotations)
	return w.end()
}

func (s Received) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeReceived)
	w.uint(s.SectionNumber)
	w.field()
	w.b = appendUlong(w.b, s.SectionOffset)
	return w.end()
}

func (s OtherState) appendTo(b []byte) ([]byte, error) { return AppendValue(b, s.Value) }

func (w *fieldWriter) state(s State) {
	if s == nil {
		w.null()
	} else {
		w.nested(s.appendTo)
	}
}

func (f *fieldReader) state(field string) State {
	if f.skip() {
		return nil
	}
	ahead := f.d
	code, nested := ahead.readComposite()
	if nested.err == nil {
		if s, ok := readState(code, &nested); ok {
			f.d = ahead
			if nested.err != nil {
				f.fail(field, nested.err)
			}
			return s
		}
	}
	v, err := f.d.value()
	if err != nil {
		f.fail(field, err)
		return nil
	}
	described, ok := v.(Described)
	if !ok {
		f.fail(field, fmt.Errorf("a %T is no state of a delivery", v))
		return nil
	}
	return OtherState{described}
}

func readState(code byte, f *fieldReader) (State, bool) {
	switch code {
	case codeAccepted:
		return Accepted{}, true
	case codeRejected:
		return Rejected{Error: f.error()}, true
	case codeReleased:
		return Released{}, true
	case codeModified:
		return Modified{
			DeliveryFailed:     f.bool("delivery-failed"),
			UndeliverableHere:  f.bool("undeliverable-here"),
			MessageAnnotations: f.fields("message-annotations"),
		}, true
	case codeReceived:
		return Received{SectionNumber: f.uint("section-number", 0), SectionOffset: f.ulong("section-offset")}, true
	}
	return nil, false
}

func (w *fieldWriter) error(e *Error) {
	if e == nil {
		w.null()
	} else {
		w.nested(e.appendTo)
	}
}

func (e *Error) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeError)
	w.symbol(e.Condition)
	w.optionalString(e.Description)
	w.fields(e.Info)
	return w.end()
}

func (f *fieldReader) error() *Error {
	var e *Error
	f.composite("error", func(code byte, f *fieldReader) error {
		if code != codeError {
			return fmt.Errorf("the descriptor 0x%02x is not that of an error", code)
		}
		e = &Error{Condition: f.symbol("condition"), Description: f.string("description"), Info: f.fields("info")}
		return nil
	})
	return e
}
