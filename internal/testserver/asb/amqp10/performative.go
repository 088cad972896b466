package amqp10

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Descriptors of AMQP 1.0, part 2, section 2.7, part 3 and part 5, section 5.3.3.
const (
	codeOpen           = 0x10
	codeBegin          = 0x11
	codeAttach         = 0x12
	codeFlow           = 0x13
	codeTransfer       = 0x14
	codeDisposition    = 0x15
	codeDetach         = 0x16
	codeEnd            = 0x17
	codeClose          = 0x18
	codeError          = 0x1d
	codeReceived       = 0x23
	codeAccepted       = 0x24
	codeRejected       = 0x25
	codeReleased       = 0x26
	codeModified       = 0x27
	codeSource         = 0x28
	codeTarget         = 0x29
	codeSASLMechanisms = 0x40
	codeSASLInit       = 0x41
	codeSASLOutcome    = 0x44
)

var descriptorNames = map[byte]string{
	codeOpen: "open", codeBegin: "begin", codeAttach: "attach", codeFlow: "flow", codeTransfer: "transfer",
	codeDisposition: "disposition", codeDetach: "detach", codeEnd: "end", codeClose: "close", codeError: "error",
	codeReceived: "received", codeAccepted: "accepted", codeRejected: "rejected", codeReleased: "released",
	codeModified: "modified", codeSource: "source", codeTarget: "target",
	codeSASLMechanisms: "sasl-mechanisms", codeSASLInit: "sasl-init", codeSASLOutcome: "sasl-outcome",
	codeHeader: "header", codeDeliveryAnnotations: "delivery-annotations", codeMessageAnnotations: "message-annotations",
	codeProperties: "properties", codeApplicationProperties: "application-properties", codeData: "data", codeSequence: "amqp-sequence",
	codeValue: "amqp-value", codeFooter: "footer",
}

var descriptorCodes = func() map[Symbol]byte {
	codes := map[Symbol]byte{}
	for code, name := range descriptorNames {
		encoding := "list"
		switch code {
		case codeDeliveryAnnotations, codeMessageAnnotations, codeApplicationProperties, codeFooter:
			encoding = "map"
		case codeData:
			encoding = "binary"
		case codeValue:
			encoding = "*"
		}
		codes[Symbol("amqp:"+name+":"+encoding)] = code
	}
	return codes
}()

// Role is a peer's side of a link.
type Role bool

// The roles of a link.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// Settle modes of AMQP 1.0, part 2, sections 2.8.2 and 2.8.3.
const (
	SenderUnsettled uint8 = 0
	SenderSettled   uint8 = 1
	SenderMixed     uint8 = 2

	ReceiverFirst  uint8 = 0
	ReceiverSecond uint8 = 1
)

// Performative is the body of a frame: *Open, *Begin, *Attach, *Flow, *Transfer,
// *Disposition, *Detach, *End, *Close, *SASLMechanisms, *SASLInit or *SASLOutcome.
type Performative interface {
	appendTo(b []byte) ([]byte, error)
}

type (
	// Open negotiates a connection.
	Open struct {
		ContainerID         string
		Hostname            string
		MaxFrameSize        uint32        // default: 4294967295
		ChannelMax          uint16        // default: 65535
		IdleTimeout         time.Duration // 0: none
		OutgoingLocales     []Symbol
		IncomingLocales     []Symbol
		OfferedCapabilities []Symbol
		DesiredCapabilities []Symbol
		Properties          Map
	}

	// Begin begins a session.
	Begin struct {
		RemoteChannel       *uint16
		NextOutgoingID      uint32
		IncomingWindow      uint32
		OutgoingWindow      uint32
		HandleMax           uint32 // default: 4294967295
		OfferedCapabilities []Symbol
		DesiredCapabilities []Symbol
		Properties          Map
	}

	// Attach attaches a link.
	Attach struct {
		Name                 string
		Handle               uint32
		Role                 Role
		SenderSettleMode     *uint8
		ReceiverSettleMode   *uint8
		Source               *Source
		Target               *Target // also nil for a coordinator of transactions
		Unsettled            Map
		IncompleteUnsettled  bool
		InitialDeliveryCount *uint32
		MaxMessageSize       uint64 // 0: no limit
		OfferedCapabilities  []Symbol
		DesiredCapabilities  []Symbol
		Properties           Map
	}

	// Flow updates the windows of a session and the credit of a link.
	Flow struct {
		NextIncomingID *uint32
		IncomingWindow uint32
		NextOutgoingID uint32
		OutgoingWindow uint32
		Handle         *uint32
		DeliveryCount  *uint32
		LinkCredit     *uint32
		Available      *uint32
		Drain          bool
		Echo           bool
		Properties     Map
	}

	// Transfer transfers a message or a part of it.
	Transfer struct {
		Handle             uint32
		DeliveryID         *uint32
		DeliveryTag        []byte
		MessageFormat      *uint32
		Settled            bool
		More               bool
		ReceiverSettleMode *uint8
		State              State
		Resume             bool
		Aborted            bool
		Batchable          bool
		Payload            []byte // follows the performative
	}

	// Disposition sends the state of deliveries.
	Disposition struct {
		Role      Role
		First     uint32
		Last      *uint32
		Settled   bool
		State     State
		Batchable bool
	}

	// Detach detaches a link.
	Detach struct {
		Handle uint32
		Closed bool
		Error  *Error
	}

	// End ends a session.
	End struct{ Error *Error }

	// Close closes a connection.
	Close struct{ Error *Error }

	// SASLMechanisms lists the mechanisms of a server.
	SASLMechanisms struct{ Mechanisms []Symbol }

	// SASLInit chooses a mechanism.
	SASLInit struct {
		Mechanism       Symbol
		InitialResponse []byte
		Hostname        string
	}

	// SASLOutcome says whether the client is authenticated.
	SASLOutcome struct {
		Code           uint8 // 0: yes
		AdditionalData []byte
	}
)

// DecodePerformative returns the performative in b. Its fields DeliveryTag,
// InitialResponse, AdditionalData and Payload are parts of b.
func DecodePerformative(b []byte) (Performative, error) {
	d := decoder{b: b}
	code, f := d.readComposite()
	if f.err != nil {
		return nil, f.err
	}
	var p Performative
	switch code {
	case codeOpen:
		p = readOpen(&f)
	case codeBegin:
		p = readBegin(&f)
	case codeAttach:
		p = readAttach(&f)
	case codeFlow:
		p = readFlow(&f)
	case codeTransfer:
		t := readTransfer(&f)
		t.Payload = d.b
		return t, f.err
	case codeDisposition:
		p = readDisposition(&f)
	case codeDetach:
		p = &Detach{Handle: f.requiredUint("handle"), Closed: f.bool("closed"), Error: f.error()}
	case codeEnd:
		p = &End{Error: f.error()}
	case codeClose:
		p = &Close{Error: f.error()}
	case codeSASLMechanisms:
		p = &SASLMechanisms{Mechanisms: f.symbols("sasl-server-mechanisms")}
	case codeSASLInit:
		p = &SASLInit{Mechanism: f.symbol("mechanism"), InitialResponse: f.bytes("initial-response"), Hostname: f.string("hostname")}
	case codeSASLOutcome:
		o := &SASLOutcome{}
		if c := f.optionalUbyte("code"); c != nil {
			o.Code = *c
		} else {
			f.missing("code")
		}
		o.AdditionalData = f.bytes("additional-data")
		p = o
	default:
		return nil, fmt.Errorf("no performative has the descriptor 0x%02x", code)
	}
	if f.err != nil {
		return nil, f.err
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%s: %d bytes behind the performative", f.name, len(d.b))
	}
	return p, nil
}

// AppendPerformative appends the encoding of p, and the payload of a transfer, to b. It
// returns an error if a value in a field has no AMQP type.
func AppendPerformative(b []byte, p Performative) ([]byte, error) { return p.appendTo(b) }

func readOpen(f *fieldReader) *Open {
	return &Open{
		ContainerID:         f.string("container-id"),
		Hostname:            f.string("hostname"),
		MaxFrameSize:        f.uint("max-frame-size", math.MaxUint32),
		ChannelMax:          f.ushort("channel-max", math.MaxUint16),
		IdleTimeout:         f.milliseconds("idle-time-out"),
		OutgoingLocales:     f.symbols("outgoing-locales"),
		IncomingLocales:     f.symbols("incoming-locales"),
		OfferedCapabilities: f.symbols("offered-capabilities"),
		DesiredCapabilities: f.symbols("desired-capabilities"),
		Properties:          f.fields("properties"),
	}
}

func (p *Open) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeOpen)
	w.string(p.ContainerID)
	w.optionalString(p.Hostname)
	w.uintUnless(p.MaxFrameSize, math.MaxUint32)
	if p.ChannelMax == math.MaxUint16 {
		w.null()
	} else {
		w.ushort(p.ChannelMax)
	}
	w.uintUnless(uint32(p.IdleTimeout/time.Millisecond), 0)
	w.symbols(p.OutgoingLocales)
	w.symbols(p.IncomingLocales)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.end()
}

func readBegin(f *fieldReader) *Begin {
	return &Begin{
		RemoteChannel:       f.optionalUshort("remote-channel"),
		NextOutgoingID:      f.requiredUint("next-outgoing-id"),
		IncomingWindow:      f.requiredUint("incoming-window"),
		OutgoingWindow:      f.requiredUint("outgoing-window"),
		HandleMax:           f.uint("handle-max", math.MaxUint32),
		OfferedCapabilities: f.symbols("offered-capabilities"),
		DesiredCapabilities: f.symbols("desired-capabilities"),
		Properties:          f.fields("properties"),
	}
}

func (p *Begin) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeBegin)
	if p.RemoteChannel == nil {
		w.null()
	} else {
		w.ushort(*p.RemoteChannel)
	}
	w.uint(p.NextOutgoingID)
	w.uint(p.IncomingWindow)
	w.uint(p.OutgoingWindow)
	w.uintUnless(p.HandleMax, math.MaxUint32)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.end()
}

func readAttach(f *fieldReader) *Attach {
	a := &Attach{Name: f.string("name"), Handle: f.requiredUint("handle")}
	role, ok := typed[bool](f, "role")
	if !ok {
		f.missing("role")
	}
	a.Role = Role(role)
	a.SenderSettleMode = f.optionalUbyte("snd-settle-mode")
	a.ReceiverSettleMode = f.optionalUbyte("rcv-settle-mode")
	a.Source = f.source("source")
	a.Target = f.target("target")
	a.Unsettled = f.fields("unsettled")
	a.IncompleteUnsettled = f.bool("incomplete-unsettled")
	a.InitialDeliveryCount = f.optionalUint("initial-delivery-count")
	a.MaxMessageSize = f.ulong("max-message-size")
	a.OfferedCapabilities = f.symbols("offered-capabilities")
	a.DesiredCapabilities = f.symbols("desired-capabilities")
	a.Properties = f.fields("properties")
	return a
}

func (p *Attach) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeAttach)
	w.string(p.Name)
	w.uint(p.Handle)
	w.bool(bool(p.Role))
	w.optionalUbyte(p.SenderSettleMode)
	w.optionalUbyte(p.ReceiverSettleMode)
	if p.Source == nil {
		w.null()
	} else {
		w.nested(p.Source.appendTo)
	}
	if p.Target == nil {
		w.null()
	} else {
		w.nested(p.Target.appendTo)
	}
	w.fields(p.Unsettled)
	w.flag(p.IncompleteUnsettled)
	w.optionalUint(p.InitialDeliveryCount)
	w.ulong(p.MaxMessageSize)
	w.symbols(p.OfferedCapabilities)
	w.symbols(p.DesiredCapabilities)
	w.fields(p.Properties)
	return w.end()
}

func readFlow(f *fieldReader) *Flow {
	return &Flow{
		NextIncomingID: f.optionalUint("next-incoming-id"),
		IncomingWindow: f.requiredUint("incoming-window"),
		NextOutgoingID: f.requiredUint("next-outgoing-id"),
		OutgoingWindow: f.requiredUint("outgoing-window"),
		Handle:         f.optionalUint("handle"),
		DeliveryCount:  f.optionalUint("delivery-count"),
		LinkCredit:     f.optionalUint("link-credit"),
		Available:      f.optionalUint("available"),
		Drain:          f.bool("drain"),
		Echo:           f.bool("echo"),
		Properties:     f.fields("properties"),
	}
}

func (p *Flow) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeFlow)
	w.optionalUint(p.NextIncomingID)
	w.uint(p.IncomingWindow)
	w.uint(p.NextOutgoingID)
	w.uint(p.OutgoingWindow)
	w.optionalUint(p.Handle)
	w.optionalUint(p.DeliveryCount)
	w.optionalUint(p.LinkCredit)
	w.optionalUint(p.Available)
	w.flag(p.Drain)
	w.flag(p.Echo)
	w.fields(p.Properties)
	return w.end()
}

func readTransfer(f *fieldReader) *Transfer {
	t := &Transfer{
		Handle:             f.requiredUint("handle"),
		DeliveryID:         f.optionalUint("delivery-id"),
		DeliveryTag:        f.bytes("delivery-tag"),
		MessageFormat:      f.optionalUint("message-format"),
		Settled:            f.bool("settled"),
		More:               f.bool("more"),
		ReceiverSettleMode: f.optionalUbyte("rcv-settle-mode"),
		State:              f.state("state"),
		Resume:             f.bool("resume"),
		Aborted:            f.bool("aborted"),
		Batchable:          f.bool("batchable"),
	}
	if len(t.DeliveryTag) > 32 {
		f.fail("delivery-tag", errors.New("more than 32 bytes"))
	}
	return t
}

func (p *Transfer) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeTransfer)
	w.uint(p.Handle)
	w.optionalUint(p.DeliveryID)
	w.binary(p.DeliveryTag)
	w.optionalUint(p.MessageFormat)
	w.flag(p.Settled)
	w.flag(p.More)
	w.optionalUbyte(p.ReceiverSettleMode)
	w.state(p.State)
	w.flag(p.Resume)
	w.flag(p.Aborted)
	w.flag(p.Batchable)
	b, err := w.end()
	return append(b, p.Payload...), err
}

func readDisposition(f *fieldReader) *Disposition {
	d := &Disposition{}
	role, ok := typed[bool](f, "role")
	if !ok {
		f.missing("role")
	}
	d.Role = Role(role)
	d.First = f.requiredUint("first")
	d.Last = f.optionalUint("last")
	d.Settled = f.bool("settled")
	d.State = f.state("state")
	d.Batchable = f.bool("batchable")
	return d
}

func (p *Disposition) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeDisposition)
	w.bool(bool(p.Role))
	w.uint(p.First)
	w.optionalUint(p.Last)
	w.flag(p.Settled)
	w.state(p.State)
	w.flag(p.Batchable)
	return w.end()
}

func (p *Detach) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeDetach)
	w.uint(p.Handle)
	w.flag(p.Closed)
	w.error(p.Error)
	return w.end()
}

func (p *End) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeEnd)
	w.error(p.Error)
	return w.end()
}

func (p *Close) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeClose)
	w.error(p.Error)
	return w.end()
}

func (p *SASLMechanisms) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeSASLMechanisms)
	w.symbols(p.Mechanisms)
	return w.end()
}

func (p *SASLInit) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeSASLInit)
	w.symbol(p.Mechanism)
	w.binary(p.InitialResponse)
	w.optionalString(p.Hostname)
	return w.end()
}

func (p *SASLOutcome) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeSASLOutcome)
	w.ubyte(p.Code)
	w.binary(p.AdditionalData)
	return w.end()
}
