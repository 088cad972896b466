package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Codec turns values into message bodies and back. It must be safe for
// concurrent use.
type Codec interface {
	// ContentType is the media type that it writes and reads, such as
	// "application/json".
	ContentType() string
	// Encode returns a new body. A panic reaches the caller of Send; in a handler it fails
	// the attempt.
	Encode(v any) ([]byte, error)
	// Decode reads body into the value that v points to. It must not keep or write body. A
	// panic counts as an error: the body cannot be decoded.
	Decode(body []byte, v any) error
}

// JSON is the default codec: encoding/json, "application/json".
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) ContentType() string             { return "application/json" }
func (jsonCodec) Encode(v any) ([]byte, error)    { return json.Marshal(v) }
func (jsonCodec) Decode(body []byte, v any) error { return json.Unmarshal(body, v) }

// rawContentType is that of bodies sent as []byte.
const rawContentType = "application/octet-stream"

// codecs chooses a codec by content type.
type codecs struct {
	standard Codec
	byType   map[string]Codec
}

func newCodecs(standard Codec, more []Codec) (*codecs, error) {
	if standard == nil {
		standard = JSON
	}
	c := &codecs{standard: standard, byType: map[string]Codec{}}
	for i, codec := range append([]Codec{standard}, more...) {
		switch {
		case i == 0 && isNilPointer(codec):
			return nil, fmt.Errorf("Codec is a nil %T; remove it", codec)
		case codec == nil, isNilPointer(codec):
			return nil, fmt.Errorf("Codecs[%d] is nil; remove it", i-1)
		}
		mediaType := mediaTypeOf(codec.ContentType())
		if mediaType == "" {
			return nil, fmt.Errorf("codec %T has no content type; return one such as %q", codec, JSON.ContentType())
		}
		if other, ok := c.byType[mediaType]; ok && i > 0 {
			return nil, fmt.Errorf("codecs %T and %T are both for content type %q; keep one", other, codec, mediaType)
		}
		c.byType[mediaType] = codec
	}
	return c, nil
}

// mediaTypeOf strips parameters: "text/x; charset=utf-8" is "text/x".
func mediaTypeOf(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// encode returns the body and content type to send. A []byte is sent unchanged, as a
// copy, because the caller may write to it after the call.
func (c *codecs) encode(messageType string, v any) (body []byte, contentType string, err error) {
	if raw, ok := v.([]byte); ok {
		return slices.Clone(raw), rawContentType, nil
	}
	body, err = c.standard.Encode(v)
	if err != nil {
		return nil, "", fmt.Errorf("encode %q from %T: %w", messageType, v, err)
	}
	return body, c.standard.ContentType(), nil
}

// decode reads body into v. Its error is a *DecodeError.
func (c *codecs) decode(messageType, contentType string, body []byte, v any) (err error) {
	codec := c.standard
	if contentType != "" && contentType != codec.ContentType() {
		var ok bool
		if codec, ok = c.byType[mediaTypeOf(contentType)]; !ok {
			return &DecodeError{messageType, contentType, errors.New("no codec for this content type; add one to Config.Codecs, or let the sender of a []byte say what it is in SendOptions.ContentType")}
		}
	}
	defer func() {
		if value := recover(); value != nil {
			err = &DecodeError{messageType, codec.ContentType(), newPanicError(value)}
		}
	}()
	if err := codec.Decode(body, v); err != nil {
		return &DecodeError{messageType, codec.ContentType(), err}
	}
	return nil
}
