package cloudevents

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// An event with more attributes, or longer ones, is refused.
const (
	maxAttributes = 100
	maxName       = 64
	maxValue      = 8 << 10
)

// event is a received event.
type event struct {
	attributes  map[string]string
	structured  bool
	data        []byte // of an event in the structured mode
	contentType string // of data
}

func (e *event) get(name string) string { return e.attributes[name] }

// set adds an attribute, and is an error for one that exceeds the limits.
func (e *event) set(name, value string) error {
	if len(name) > maxName || len(value) > maxValue {
		return invalid("the attribute %.*q has a name of %d bytes and a value of %d; they may have %d and %d", maxName, name, len(name), len(value), maxName, maxValue)
	}
	if len(e.attributes) >= maxAttributes && !slices.Contains(required, name) {
		return invalid("it has more than %d attributes", maxAttributes)
	}
	if e.attributes == nil {
		e.attributes = make(map[string]string, 8)
	}
	e.attributes[name] = value
	return nil
}

// invalid returns the error for a message that claims to be an event and is none.
func invalid(format string, args ...any) error {
	return fmt.Errorf("cloudevents: the message is no valid event: %w: %w", fmt.Errorf(format, args...), core.ErrUndecodable)
}

// required are the attributes without which a message is no event.
var required = []string{"id", "source", "type"}

// missing returns the first required attribute that the event lacks, or "".
func (e *event) missing() string {
	for _, name := range required {
		if e.get(name) == "" {
			return name
		}
	}
	return ""
}

// checkVersion refuses events of versions before 1.0 and after 1.x.
func (e *event) checkVersion() error {
	if version, ok := e.attributes["specversion"]; ok && !strings.HasPrefix(version, "1.") {
		return invalid("its specversion is %q; events of version 1.0 are read", version)
	}
	return nil
}

const jsonContentType = "application/json"

// read returns the event that a message is, or nil if it is none. body is called only if the
// message may be an event in the structured mode.
func read(h *core.Headers, body func() []byte) (*event, error) {
	contentType := mediaType(h.Get(headers.ContentType))
	switch {
	case contentType == "application/cloudevents+json" || contentType == "application/cloudevents":
		return readStructured(body())
	case isCloudEvents(contentType):
		return nil, invalid("its content type is %.*q; single events in JSON are read, as application/cloudevents+json, and no batches", maxName, contentType)
	}
	e, err := readBinary(h)
	if e != nil || err != nil {
		return e, err
	}
	// A service such as EventBridge names neither a type nor a content type.
	if h.Get(headers.MessageTypes) == "" && (contentType == "" || contentType == jsonContentType || contentType == "application/octet-stream") {
		return detectStructured(body()), nil
	}
	return nil, nil
}

// mediaType returns a content type in lower case, without parameters.
func mediaType(contentType string) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(contentType))
}

// isCloudEvents reports whether a content type is that of events or of batches.
func isCloudEvents(contentType string) bool {
	return strings.HasPrefix(mediaType(contentType), "application/cloudevents")
}

// prefixes are those of headers with attributes in the binary mode: of AMQP's binding, of
// its form for clients that allow no colon, and of HTTP's binding, which is used on SQS.
var prefixes = []string{attributePrefix, "cloudEvents_", "ce-"}

const attributePrefix = "cloudEvents:"

// allAttributes is the one attribute of SQS in which Brighter puts those of an event, as
// JSON: SQS allows ten.
const allAttributes = "cloudeventheaders"

// attributeName returns the name of the attribute in a header, or "".
func attributeName(key string) string {
	for _, prefix := range prefixes {
		if len(key) > len(prefix) && strings.EqualFold(key[:len(prefix)], prefix) {
			return strings.ToLower(key[len(prefix):])
		}
	}
	return ""
}

// readBinary returns the event whose attributes are headers, or nil.
func readBinary(h *core.Headers) (*event, error) {
	var e *event // most messages have none
	var firstErr error
	for key, value := range h.All() {
		if key == "" || key[0]|0x20 != 'c' {
			continue
		}
		name := attributeName(key)
		if name == "" && key != allAttributes {
			continue
		}
		if e == nil {
			e = &event{}
		}
		if name == "" {
			firstErr = cmp.Or(firstErr, e.setAll([]byte(value), nil))
			continue
		}
		if at, err := headers.ParseTime(value); name == "time" && err == nil {
			value = at.Format(time.RFC3339Nano) // on RabbitMQ it may be a time, which its adapter writes so
		}
		firstErr = cmp.Or(firstErr, e.set(name, value))
	}
	if e == nil || e.missing() != "" {
		return nil, nil // headers of these names may be another program's
	}
	if err := cmp.Or(firstErr, e.checkVersion()); err != nil {
		return nil, err
	}
	return e, nil
}

// setAll adds the attributes in a JSON object. Members whose names are in members are no
// attributes, and are put there.
func (e *event) setAll(text []byte, members map[string]json.RawMessage) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), &all); err != nil {
		return invalid("%w", err)
	}
	for name, value := range all {
		if _, ok := members[name]; ok {
			members[name] = value
			continue
		}
		switch value[0] {
		case '"':
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return invalid("%w", err)
			}
			value = json.RawMessage(text)
		case '{', '[', 'n':
			continue // attributes are scalar, and null is none
		}
		if err := e.set(name, string(value)); err != nil {
			return err
		}
	}
	return nil
}

// detectStructured returns the event in a JSON text without a content type, or nil.
func detectStructured(body []byte) *event {
	if !bytes.Contains(body, []byte(`"specversion"`)) {
		return nil
	}
	e, err := readStructured(body)
	if err != nil || e.get("specversion") == "" {
		return nil
	}
	return e
}

// readStructured returns the event in a JSON text.
func readStructured(body []byte) (*event, error) {
	e := &event{structured: true}
	members := map[string]json.RawMessage{"data": nil, "data_base64": nil}
	if err := e.setAll(body, members); err != nil {
		return nil, err
	}
	if name := e.missing(); name != "" {
		return nil, invalid("it has no attribute %q", name)
	}
	if err := e.checkVersion(); err != nil {
		return nil, err
	}
	if e.contentType = e.get("datacontenttype"); e.contentType == "" {
		e.contentType = jsonContentType
	}
	data, encoded := members["data"], members["data_base64"]
	if string(encoded) == "null" {
		encoded = nil
	}
	switch {
	case encoded != nil && data != nil:
		return nil, invalid("it has both data and data_base64")
	case encoded != nil:
		var text string
		err := json.Unmarshal(encoded, &text)
		if err == nil {
			e.data, err = base64.StdEncoding.DecodeString(text)
		}
		if err != nil {
			return nil, invalid("data_base64: %w", err)
		}
	case data == nil || isJSON(e.contentType):
		e.data = data
	default:
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return nil, invalid("data of the type %.*q is not a string: %w", maxName, e.contentType, err)
		}
		e.data = []byte(text)
	}
	return e, nil
}

// isJSON reports whether data of a content type is a JSON value in an event.
func isJSON(contentType string) bool {
	contentType = mediaType(contentType)
	return strings.HasSuffix(contentType, "/json") || strings.HasSuffix(contentType, "+json")
}
