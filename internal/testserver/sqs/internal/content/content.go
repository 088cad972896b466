// Package content has the part of a message that its sender chooses, with its checks and checksums.
package content

import (
	"encoding/binary"
	"math/rand/v2"
)

// A Content is the part of a message that a sender chooses, and its checksums.
type Content struct {
	ID            string
	Body          string
	BodyMD5       string
	Attributes    []Attribute // sorted by name
	AttributesMD5 string
	Trace         string // the system attribute AWSTraceHeader
	TraceMD5      string
	Sender        string
}

// An Attribute is a message attribute, with the value as it is on the wire.
type Attribute struct {
	Name   string `json:"n"`
	Type   string `json:"t"`
	String string `json:"s,omitempty"`
	Binary []byte `json:"b,omitempty"`
}

// Size returns the bytes that count towards the limits: body, and the names, types and
// values of attributes, but not the system attributes.
func (c *Content) Size() int {
	n := len(c.Body)
	for i := range c.Attributes {
		a := &c.Attributes[i]
		n += len(a.Name) + len(a.Type) + len(a.String) + len(a.Binary)
	}
	return n
}

// NewID returns a random UUID.
func NewID() string {
	const digits = "0123456789abcdef"
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[0:], rand.Uint64())
	binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
	raw[6] = raw[6]&0x0f | 0x40
	raw[8] = raw[8]&0x3f | 0x80
	var text [36]byte
	at := 0
	for i, b := range raw {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		text[at], text[at+1] = digits[b>>4], digits[b&15]
		at += 2
	}
	return string(text[:])
}
