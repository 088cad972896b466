package message

import (
	"cmp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// MaxAttributes is the service's limit of a message.
const MaxAttributes = 10

// source has the parts of a received message that its copies keep beside headers and body.
type source struct {
	// raw is true for a message whose body stood in the text as it is.
	raw bool
	// attrs are the sender's attributes with a header of the same text, so that a copy whose headers were
	// edited has none that they no longer have. Those that lose most as text are first.
	attrs []Attr
	trace string // AWSTraceHeader
}

// sourceOf returns the message that out is a copy of, or nil.
func sourceOf(out *core.Outgoing) *source {
	m, ok := out.Native.(*types.Message)
	if !ok || m == nil || out.Topic != "" {
		return nil
	}
	text, texts := value(m.Body), Attributes(m)
	s := &source{trace: m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)]}
	var all []Attr
	if around := envelopeOf(text, texts); around != nil {
		text, texts = *around.Message, around.attributes()
		all = around.native()
	} else {
		all = nativeAttributes(m)
	}
	_, hasHeaders := texts[attrHeaders]
	s.raw = hasHeaders || texts[attrType] != "" || !strings.HasPrefix(text, wrapperStart) && !(&Received{}).readWrapped(text, texts)
	for _, a := range all {
		header := a.Name
		switch {
		case a.Name == attrMessageID, a.Name == attrHeaders, a.Name == attrBodyKey, a.Name == AttrDelaySeconds, strings.HasPrefix(a.Name, "Reprise."):
			continue
		case a.Name == attrType:
			header = headers.MessageTypes
		}
		if text, has := out.Headers.Lookup(header); has && text == texts[a.Name] && a.Type != "" && a.Value != "" {
			s.attrs = append(s.attrs, a)
		}
	}
	slices.SortFunc(s.attrs, func(a, b Attr) int { return cmp.Or(cmp.Compare(loss(a), loss(b)), cmp.Compare(a.Name, b.Name)) })
	return s
}

// loss orders attributes by how much is lost if they are headers alone.
func loss(a Attr) int {
	switch {
	case isBinary(a.Type):
		return 0
	case a.Type != "String":
		return 1
	}
	return 2
}

func nativeAttributes(m *types.Message) []Attr {
	all := make([]Attr, 0, len(m.MessageAttributes))
	for name, v := range m.MessageAttributes {
		a := Attr{Name: name, Type: value(v.DataType), Value: value(v.StringValue)}
		if isBinary(a.Type) {
			a.Value = string(v.BinaryValue)
		}
		all = append(all, a)
	}
	return all
}

// native returns the attributes of the message in the envelope that SQS accepts: any sender can write an
// envelope.
func (e *envelope) native() []Attr {
	var all []Attr
	for name, v := range e.MessageAttributes {
		a := Attr{Name: name, Type: v.Type, Value: v.Value}
		if isBinary(a.Type) {
			b, err := decode(v.Value)
			if err != nil {
				continue
			}
			a.Value = string(b)
		}
		if a.isAccepted() {
			all = append(all, a)
		}
	}
	return all
}

// isAccepted reports whether SQS accepts the attribute.
func (a *Attr) isAccepted() bool {
	kind, label, labelled := strings.Cut(a.Type, ".")
	if a.Value == "" || !isName(a.Name) || labelled && !isName(label) || len(a.Type) > maxName {
		return false
	}
	switch kind {
	case "Binary":
		return true
	case "String":
		return isText([]byte(a.Value))
	case "Number":
		return isNumber(a.Value)
	}
	return false
}

const maxName = 256

// isName reports whether a name may be that of an attribute.
func isName(name string) bool {
	lower := strings.ToLower(name)
	if name == "" || len(name) > maxName || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") ||
		name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	})
}

// isNumber reports whether a text is a plain decimal number, which the service accepts with up to 38 digits.
func isNumber(text string) bool {
	whole, fraction, has := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	isDigits := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	}
	return isDigits(whole) && (!has || isDigits(fraction)) && len(whole)+len(fraction) <= 38
}

// keep adds the sender's attributes to a copy, as many as fit into a number of attributes and of bytes. s may
// be nil.
func (s *source) keep(m *Encoded, attributes, bytes int) {
	if s == nil {
		return
	}
	m.Trace = s.trace
	size := m.Bytes()
	for _, a := range s.attrs {
		if a.Name == attrType && !m.raw { // beside it a wrapper would be a foreign body
			continue
		}
		if n := a.bytes(); len(m.Attrs) < attributes && size+n <= bytes {
			m.Attrs = append(m.Attrs, a)
			size += n
		}
	}
}

// Recode writes a received message once more, in at most the given number of attributes and of bytes. It
// returns nil for one that does not fit, or would not be the same.
func (c *Codec) Recode(r *Received, attributes, bytes int) *Encoded {
	if r.Malformed != nil || r.Enveloped {
		return nil
	}
	out := &core.Outgoing{ID: r.ID, Headers: r.Headers, Body: r.Body, GroupKey: r.GroupKey, Properties: r.Properties, Native: r.Native}
	from := sourceOf(out)
	m := write(out, outgoingHeaders(out), c.rawCopy(out, from), r.BodyKey)
	if len(m.Attrs) > attributes || m.Bytes() > bytes {
		return nil
	}
	from.keep(m, attributes, bytes)
	return m
}

// rawCopy reports whether a message is written Raw: in the format of the codec, or as a copy of a raw text.
func (c *Codec) rawCopy(out *core.Outgoing, from *source) bool {
	return c.Raw || from != nil && from.raw && len(out.Body) > 0 && string(out.Body) != emptyBody && isText(out.Body)
}
