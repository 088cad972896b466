package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/internal/charset"
	"github.com/reprise-go/reprise/core/internal/mediatype"
	"github.com/reprise-go/reprise/internal/bounded"
)

// Codec turns values into message bodies and back. It must be safe for
// concurrent use.
type Codec interface {
	// ContentType is the media type that Encode writes, such as "application/json".
	ContentType() string
	// Encode returns a new body. A panic reaches the caller of Send.
	Encode(v any) ([]byte, error)
	// Decode reads body into the value that v points to. contentType is the media type of
	// the message in lower case, or "". Of its parameters it has only a charset other than
	// UTF-8: "text/xml;charset=utf-16". A type that the codec does not read is an error.
	// Decode must not keep or write body. A panic counts as an error.
	Decode(contentType string, body []byte, v any) error
}

// JSON is the default codec: encoding/json, "application/json". It also reads "text/json" and
// all types that end in "+json", and UTF-8 with a byte order mark, UTF-16 and ISO-8859-1.
var JSON Codec = jsonCodec{}

const jsonContentType = "application/json"

type jsonCodec struct{}

func (jsonCodec) ContentType() string          { return jsonContentType }
func (jsonCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Decode(contentType string, body []byte, v any) error {
	mediaType, name := mediatype.Split(contentType)
	if strings.HasPrefix(mediaType, "application/cloudevents") { // any type would be decoded from it, without its data
		return errors.New("it is an event of CloudEvents in structured mode; add package middleware/cloudevents to the endpoint")
	}
	if mediaType != "" && mediaType != jsonContentType && mediaType != "text/json" && !strings.HasSuffix(mediaType, "+json") {
		return errors.New("this content type is not JSON; let the sender name another one, or set a Config.Codec that reads it")
	}
	text, err := charset.JSON(body, name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
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

// decode reads body into v. Its error matches [ErrUndecodable]. encoding returns the content
// encoding of the message, or "".
func (c *bodyCodec) decode(messageType, contentType string, body []byte, v any, encoding func() string) (err error) {
	mediaType := c.mediaType
	if contentType != c.contentType {
		mediaType = mediatype.Of(contentType)
	}
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
		if err != nil {
			err = newDecodeError(messageType, firstNonEmpty(contentType, c.contentType), err, beginning(body)+encodingText(encoding()))
		}
	}()
	return c.codec.Decode(mediaType, body, v)
}

// beginning returns the first bytes of a body that are not text, as a part of an error, or "".
func beginning(body []byte) string {
	first := body[:min(len(body), 8)]
	for i := 0; i < len(first); {
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size <= 1 || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			text := fmt.Sprintf("; the body begins with % x", first)
			if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
				text += ": it is compressed with gzip, which middleware has to unpack (Message.SetBody)"
			}
			return text
		}
		i += size
	}
	return ""
}

func encodingText(encoding string) string {
	if encoding == "" {
		return ""
	}
	return fmt.Sprintf("; its content encoding is %q", bounded.Name(encoding))
}

// contentEncoding returns the encoding that the message names in a header or in a field of
// the client library's message, or "".
func (m *Message) contentEncoding() string {
	for key, value := range m.Headers.All() {
		if strings.EqualFold(key, "content-encoding") {
			return value
		}
	}
	native := reflect.Indirect(reflect.ValueOf(m.incoming.Native))
	if native.Kind() != reflect.Struct {
		return ""
	}
	const name = "ContentEncoding"
	if field, ok := native.Type().FieldByName(name); ok && len(field.Index) == 1 && field.Type.Kind() == reflect.String {
		return native.FieldByIndex(field.Index).String()
	}
	return ""
}
