package amqp10

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Descriptors of the sections of a message: AMQP 1.0, part 3, section 3.2.
const (
	codeHeader                = 0x70
	codeDeliveryAnnotations   = 0x71
	codeMessageAnnotations    = 0x72
	codeProperties            = 0x73
	codeApplicationProperties = 0x74
	codeData                  = 0x75
	codeSequence              = 0x76
	codeValue                 = 0x77
	codeFooter                = 0x78
)

type (
	// Message is a decoded message. Its body is in one of Data, Sequence and Value.
	Message struct {
		Header                *MessageHeader // nil: there is no such section
		DeliveryAnnotations   Annotations
		Annotations           Annotations
		Properties            *MessageProperties // nil: there is no such section
		ApplicationProperties map[string]any
		Data                  [][]byte
		Sequence              []List
		Value                 any // Null for a null; nil: there is no such section
		Footer                Annotations
	}

	// MessageHeader has the delivery details that every node may read.
	MessageHeader struct {
		Durable       bool
		Priority      uint8 // default: 4
		TTL           time.Duration
		FirstAcquirer bool
		DeliveryCount uint32
	}

	// Annotations are values for the nodes on the way of a message.
	Annotations map[Symbol]any

	// MessageProperties are the standard properties of a message. A nil field is absent.
	MessageProperties struct {
		MessageID          any // a uint64, a UUID, a []byte or a string
		UserID             []byte
		To                 *string
		Subject            *string
		ReplyTo            *string
		CorrelationID      any // as MessageID
		ContentType        *string
		ContentEncoding    *string
		AbsoluteExpiryTime *time.Time
		CreationTime       *time.Time
		GroupID            *string
		GroupSequence      *uint32
		ReplyToGroupID     *string
	}

	// Null is the value of a message whose body is null.
	Null struct{}
)

// Body returns the first data section of the body, or nil if there is none.
func (m *Message) Body() []byte {
	if len(m.Data) == 0 {
		return nil
	}
	return m.Data[0]
}

// AppendMessage appends the encoding of m to b. It returns an error for a value that
// [AppendValue] refuses.
func AppendMessage(b []byte, m *Message) ([]byte, error) {
	size := 512 // roughly, without the body
	for _, data := range m.Data {
		size += len(data)
	}
	b = slices.Grow(b, size)
	var err error
	if m.Header != nil {
		if b, err = m.Header.appendTo(b); err != nil {
			return b, err
		}
	}
	if b, err = appendSection(b, codeDeliveryAnnotations, codeSymbol8, m.DeliveryAnnotations); err != nil {
		return b, err
	}
	if b, err = appendSection(b, codeMessageAnnotations, codeSymbol8, m.Annotations); err != nil {
		return b, err
	}
	if m.Properties != nil {
		if b, err = m.Properties.appendTo(b); err != nil {
			return b, err
		}
	}
	if b, err = appendSection(b, codeApplicationProperties, codeString8, m.ApplicationProperties); err != nil {
		return b, err
	}
	if b, err = m.appendBody(b); err != nil {
		return b, err
	}
	return appendSection(b, codeFooter, codeSymbol8, m.Footer)
}

func (m *Message) appendBody(b []byte) (_ []byte, err error) {
	for _, data := range m.Data {
		b = appendVariable(append(b, codeDescribed, codeSmallUlong, codeData), codeBinary8, data)
	}
	for _, sequence := range m.Sequence {
		if b, err = appendList(append(b, codeDescribed, codeSmallUlong, codeSequence), sequence); err != nil {
			return b, err
		}
	}
	switch m.Value.(type) {
	case nil:
		return b, nil
	case Null:
		return append(b, codeDescribed, codeSmallUlong, codeValue, codeNull), nil
	}
	return AppendValue(append(b, codeDescribed, codeSmallUlong, codeValue), m.Value)
}

// appendSection appends a section that is a map, unless it is nil. The constructor of short
// keys is key8.
func appendSection[K ~string](b []byte, code, key8 byte, values map[K]any) ([]byte, error) {
	if values == nil {
		return b, nil
	}
	b, start := beginCompound(append(b, codeDescribed, codeSmallUlong, code), codeMap8)
	for k, v := range values {
		var err error
		if b, err = AppendValue(appendVariable(b, key8, k), v); err != nil {
			return b, fmt.Errorf("%s: %q: %w", descriptorNames[code], k, err)
		}
	}
	return endCompound(b, start, 2*len(values)), nil
}

func (h *MessageHeader) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeHeader)
	w.flag(h.Durable)
	if h.Priority == 4 {
		w.null()
	} else {
		w.ubyte(h.Priority)
	}
	w.uintUnless(uint32(h.TTL/time.Millisecond), 0)
	w.flag(h.FirstAcquirer)
	w.uintUnless(h.DeliveryCount, 0)
	return w.end()
}

func (p *MessageProperties) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeProperties)
	w.any(p.MessageID)
	w.binary(p.UserID)
	w.text(p.To, codeString8)
	w.text(p.Subject, codeString8)
	w.text(p.ReplyTo, codeString8)
	w.any(p.CorrelationID)
	w.text(p.ContentType, codeSymbol8)
	w.text(p.ContentEncoding, codeSymbol8)
	w.time(p.AbsoluteExpiryTime)
	w.time(p.CreationTime)
	w.text(p.GroupID, codeString8)
	w.optionalUint(p.GroupSequence)
	w.text(p.ReplyToGroupID, codeString8)
	return w.end()
}

// text writes v even if it is empty, as a string or a symbol.
func (w *fieldWriter) text(v *string, code8 byte) {
	if v == nil {
		w.null()
		return
	}
	w.field()
	w.b = appendVariable(w.b, code8, *v)
}

func (w *fieldWriter) time(v *time.Time) {
	if v == nil {
		w.null()
	} else {
		w.any(*v)
	}
}

// DecodeMessage decodes a message. It shares no memory with b.
func DecodeMessage(b []byte) (*Message, error) {
	m := &Message{}
	d := decoder{b: b}
	for len(d.b) > 0 {
		if err := m.readSection(&d); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Message) readSection(d *decoder) error {
	start := *d
	code, err := d.descriptor()
	if err != nil {
		return err
	}
	switch code {
	case codeHeader:
		*d = start
		m.Header, err = readHeader(d)
	case codeDeliveryAnnotations:
		m.DeliveryAnnotations, err = readMap[Symbol](d)
	case codeMessageAnnotations:
		m.Annotations, err = readMap[Symbol](d)
	case codeProperties:
		*d = start
		m.Properties, err = readProperties(d)
	case codeApplicationProperties:
		m.ApplicationProperties, err = readMap[string](d)
	case codeFooter:
		m.Footer, err = readMap[Symbol](d)
	case codeData, codeSequence, codeValue:
		err = m.readBody(code, d)
	default:
		return fmt.Errorf("no section of a message has the descriptor 0x%02x", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", descriptorNames[code], err)
	}
	return nil
}

func (m *Message) readBody(code byte, d *decoder) error {
	v, err := d.value()
	if err != nil {
		return err
	}
	switch code {
	case codeData:
		data, ok := v.([]byte)
		if !ok {
			return fmt.Errorf("a %T is no binary", v)
		}
		m.Data = append(m.Data, data)
	case codeSequence:
		sequence, ok := v.(List)
		if !ok {
			return fmt.Errorf("a %T is no list", v)
		}
		m.Sequence = append(m.Sequence, sequence)
	case codeValue:
		if m.Value = v; v == nil {
			m.Value = Null{}
		}
	}
	return nil
}

// readMap reads a map whose keys are symbols or strings.
func readMap[K ~string](d *decoder) (map[K]any, error) {
	code, err := d.byte()
	if err != nil {
		return nil, err
	}
	if code != codeMap8 && code != codeMap32 {
		return nil, fmt.Errorf("a value that begins with 0x%02x is no map", code)
	}
	body, count, err := d.header(code)
	if err != nil {
		return nil, err
	}
	if count%2 != 0 || count > len(body.b) {
		return nil, fmt.Errorf("a map of %d elements in %d bytes", count, len(body.b))
	}
	values := make(map[K]any, count/2)
	for range count / 2 {
		code, err := body.byte()
		if err != nil {
			return nil, err
		}
		if short := code &^ 0x10; short != codeSymbol8 && short != codeString8 {
			return nil, fmt.Errorf("a key that begins with 0x%02x is neither a symbol nor a string", code)
		}
		key, err := body.variable(code)
		if err != nil {
			return nil, err
		}
		if values[K(key)], err = body.value(); err != nil {
			return nil, err
		}
	}
	return values, body.end()
}

func readHeader(d *decoder) (*MessageHeader, error) {
	_, f := d.readComposite()
	h := &MessageHeader{Durable: f.bool("durable"), Priority: 4}
	if priority := f.optionalUbyte("priority"); priority != nil {
		h.Priority = *priority
	}
	h.TTL = f.milliseconds("ttl")
	h.FirstAcquirer = f.bool("first-acquirer")
	h.DeliveryCount = f.uint("delivery-count", 0)
	return h, f.err
}

func readProperties(d *decoder) (*MessageProperties, error) {
	_, f := d.readComposite()
	p := &MessageProperties{
		MessageID:          f.messageID("message-id"),
		UserID:             bytes.Clone(f.bytes("user-id")),
		To:                 f.text("to"),
		Subject:            f.text("subject"),
		ReplyTo:            f.text("reply-to"),
		CorrelationID:      f.messageID("correlation-id"),
		ContentType:        f.text("content-type"),
		ContentEncoding:    f.text("content-encoding"),
		AbsoluteExpiryTime: f.time("absolute-expiry-time"),
		CreationTime:       f.time("creation-time"),
		GroupID:            f.text("group-id"),
		GroupSequence:      f.optionalUint("group-sequence"),
		ReplyToGroupID:     f.text("reply-to-group-id"),
	}
	return p, f.err
}

func (f *fieldReader) messageID(field string) any {
	v := f.any(field)
	switch v.(type) {
	case nil, uint64, UUID, []byte, string:
		return v
	}
	f.fail(field, fmt.Errorf("a %T is no message id", v))
	return nil
}

// text reads a string or a symbol, or returns nil if it is absent.
func (f *fieldReader) text(field string) *string {
	if f.skip() {
		return nil
	}
	code, _ := f.d.byte()
	if short := code &^ 0x10; short != codeSymbol8 && short != codeString8 {
		f.fail(field, fmt.Errorf("a value that begins with 0x%02x is neither a string nor a symbol", code))
		return nil
	}
	v, err := f.d.variable(code)
	if err != nil {
		f.fail(field, err)
		return nil
	}
	text := string(v)
	return &text
}

func (f *fieldReader) time(field string) *time.Time {
	if v, ok := typed[time.Time](f, field); ok {
		return &v
	}
	return nil
}
