package cloudevents

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// write makes a message an event.
func write(out *core.Outgoing, source string, structured bool) error {
	messageType, _, _ := strings.Cut(out.Headers.Get(headers.MessageTypes), ";") // without base types
	attributes := map[string]string{"specversion": "1.0", "id": out.ID, "source": source, "type": messageType}
	if at, err := headers.ParseTime(out.Headers.Get(headers.TimeSent)); err == nil {
		attributes["time"] = at.Format(time.RFC3339Nano)
	}
	for _, name := range traceAttributes {
		if value := out.Headers.Get(name); value != "" {
			attributes[name] = value
		}
	}
	var given []string
	for key, value := range out.Headers.All() {
		name, ok := strings.CutPrefix(key, attributePrefix)
		if !ok {
			continue
		}
		if err := checkGiven(name); err != nil {
			return err
		}
		attributes[name] = value
		given = append(given, key)
	}
	if structured {
		out.Headers.Del(given...)
		return writeStructured(out, attributes)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		out.Headers.Set(attributePrefix+name, attributes[name])
	}
	return nil
}

// checkGiven refuses attributes that a message cannot have as a header.
func checkGiven(name string) error {
	switch name {
	case "id", "type", "specversion":
		return fmt.Errorf("cloudevents: the header %s%s cannot be set: the message's id and type are those of the event", attributePrefix, name)
	case "datacontenttype":
		return fmt.Errorf("cloudevents: the header %s%s cannot be set; use SendOptions.ContentType", attributePrefix, name)
	case "data", "data_base64", "":
		return fmt.Errorf("cloudevents: %q is no attribute; name the header otherwise", attributePrefix+name)
	}
	if len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("cloudevents: the header %.*q is no attribute: its name has to consist of at most %d small letters and digits", maxName, attributePrefix+name, maxName)
	}
	return nil
}

// writeStructured replaces the body by the event.
func writeStructured(out *core.Outgoing, attributes map[string]string) error {
	members := make(map[string]any, len(attributes)+2)
	for name, value := range attributes {
		members[name] = value
	}
	contentType := out.Headers.Get(headers.ContentType)
	members["datacontenttype"] = contentType
	if isJSON(contentType) && json.Valid(out.Body) {
		members["data"] = json.RawMessage(out.Body)
	} else {
		members["data_base64"] = out.Body // which encoding/json encodes so
	}
	body, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("cloudevents: write the event %q: %w", attributes["id"], err)
	}
	out.Body = body
	out.Headers.Set(headers.ContentType, "application/cloudevents+json")
	return nil
}
