package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core/internal/mediatype"
)

// Codec turns values into message bodies and back. It must be safe for
// concurrent use.
type Codec interface {
	// ContentType is the media type that Encode writes, such as "application/json".
	ContentType() string
	// Encode returns a new body. A panic reaches the caller of Send.
	Encode(v any) ([]byte, error)
	// Decode reads body into the value that v points to. contentType is the media type of
	// the message, in lower case and without parameters, or "". A type that the codec does
	// not read is an error. Decode must not keep or write body. A panic counts as an error.
	Decode(contentType string, body []byte, v any) error
}

// JSON is the default codec: encoding/json, "application/json".
var JSON Codec = jsonCodec{}

const jsonContentType = "application/json"

type jsonCodec struct{}

func (jsonCodec) ContentType() string          { return jsonContentType }
func (jsonCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Decode(contentType string, body []byte, v any) error {
	if contentType != "" && contentType != jsonContentType {
		return errors.New("it is not JSON; set a Config.Codec that reads it, or let the sender of a []byte set SendOptions.ContentType")
	}
	return json.Unmarshal(body, v)
}

// rawContentType is that of bodies sent as []byte.
const rawContentType = "application/octet-stream"

// bodyCodec is a codec whose errors say which message they are about.
type bodyCodec struct {
	codec                  Codec
	contentType, mediaType string
}

func newBodyCodec(codec Codec) (*bodyCodec, error) {
	if codec == nil {
		codec = JSON
	}
	if isNilPointer(codec) {
		return nil, fmt.Errorf("Codec is a nil %T; remove it", codec)
	}
	c := &bodyCodec{codec, codec.ContentType(), mediatype.Of(codec.ContentType())}
	if c.mediaType == "" {
		return nil, fmt.Errorf("codec %T has no content type; return one such as %q", codec, jsonContentType)
	}
	return c, nil
}

// encode returns the body and content type to send. A []byte is sent unchanged, as a
// copy, because the caller may write to it after the call.
func (c *bodyCodec) encode(messageType string, v any) (body []byte, contentType string, err error) {
	if raw, ok := v.([]byte); ok {
		return slices.Clone(raw), rawContentType, nil
	}
	body, err = c.codec.Encode(v)
	if err != nil {
		return nil, "", fmt.Errorf("encode %q from %T: %w", messageType, v, err)
	}
	return body, c.contentType, nil
}

// decode reads body into v. Its error matches [ErrUndecodable].
func (c *bodyCodec) decode(messageType, contentType string, body []byte, v any) (err error) {
	mediaType := c.mediaType
	if contentType != c.contentType {
		mediaType = mediatype.Of(contentType)
	}
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
		if err != nil {
			err = newDecodeError(messageType, firstNonEmpty(contentType, c.contentType), err)
		}
	}()
	return c.codec.Decode(mediaType, body, v)
}
