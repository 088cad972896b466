package content

import (
	"crypto/md5" //nolint:gosec // the service's own checksum
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
)

// MaxAttributes is how many attributes a message may have.
const MaxAttributes = 10

// ParseAttributes checks message attributes and returns them sorted by name. The kind,
// "user" or "system", is for the errors.
func ParseAttributes(values map[string]api.AttributeValue, kind string) ([]Attribute, *api.Error) {
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > MaxAttributes {
		return nil, api.InvalidParameter("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(values), MaxAttributes)
	}
	attributes := make([]Attribute, 0, len(values))
	for name, v := range values {
		a, err := ParseAttribute(name, v, kind)
		if err != nil {
			return nil, err
		}
		attributes = append(attributes, a)
	}
	slices.SortFunc(attributes, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return attributes, nil
}

// ParseAttribute checks a message attribute. The kind, "user" or "system", is for the errors.
func ParseAttribute(name string, v api.AttributeValue, kind string) (Attribute, *api.Error) {
	if reason := checkAttributeName(name); reason != "" {
		return Attribute{}, api.InvalidParameter("Message (%s) attribute name '%s' is invalid: %s", kind, name, reason)
	}
	if v.DataType == nil || *v.DataType == "" {
		return Attribute{}, api.InvalidParameter("The message attribute '%s' must contain a non-empty message attribute type.", name)
	}
	a := Attribute{Name: name, Type: *v.DataType}
	base, _, _ := strings.Cut(a.Type, ".")
	if len(a.Type) > 256 || !slices.Contains([]string{"String", "Number", "Binary"}, base) {
		return Attribute{}, api.InvalidParameter("The message attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", name)
	}
	empty := func() (Attribute, *api.Error) {
		return Attribute{}, api.InvalidParameter("Message (%s) attribute '%s' must contain a non-empty value of type '%s'.", kind, name, base)
	}
	if base == "Binary" {
		if v.BinaryValue == nil || *v.BinaryValue == "" {
			return empty()
		}
		raw, err := base64.StdEncoding.DecodeString(*v.BinaryValue)
		if err != nil {
			return Attribute{}, api.Failure("SerializationException", "The value of attribute '%s' is not base64.", name)
		}
		a.Binary = raw
		return a, nil
	}
	if v.StringValue == nil || *v.StringValue == "" {
		return empty()
	}
	a.String = *v.StringValue
	if !Valid(a.String) {
		return Attribute{}, api.InvalidParameter("Message (%s) attribute '%s' value contains characters that are not allowed.", kind, name)
	}
	if base == "Number" && !isNumber(a.String) {
		return Attribute{}, api.InvalidParameter("Can't cast the value of message (%s) attribute '%s' to a number.", kind, name)
	}
	return a, nil
}

// checkAttributeName returns why a name is invalid, or "".
func checkAttributeName(name string) string {
	lower := strings.ToLower(name)
	switch {
	case name == "" || len(name) > 256:
		return "it must have 1 to 256 characters"
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return "names must not start with AWS. or Amazon."
	case strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return "it must not start or end with a period, nor have periods in succession"
	}
	for i := range len(name) {
		if c := name[i]; !api.IsAlphanumeric(c) && c != '_' && c != '-' && c != '.' {
			return "it can contain alphanumeric characters, underscores, hyphens and periods"
		}
	}
	return ""
}

func isNumber(s string) bool {
	if strings.ContainsAny(s, "xX_iInN") { // hexadecimal, underscores, Inf and NaN
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// Valid reports whether a text has only characters that the service accepts: #x9 | #xA
// | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF.
func Valid(s string) bool {
	for i := range len(s) { // most texts have only these
		if c := s[i]; c < 0x20 && c != '\t' && c != '\n' && c != '\r' || c >= 0x80 {
			return validRunes(s)
		}
	}
	return true
}

func validRunes(s string) bool {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// MD5 returns the checksum of a text.
func MD5(s string) string {
	sum := md5.Sum([]byte(s)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// MD5OfAttributes returns the checksum of attributes that are sorted by name: see
// "Calculating the MD5 message digest for message attributes" in
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html.
func MD5OfAttributes(attributes []Attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	h := md5.New() //nolint:gosec // see the import
	var length [4]byte
	write := func(s string) {
		binary.BigEndian.PutUint32(length[:], uint32(len(s)))
		h.Write(length[:])
		h.Write([]byte(s))
	}
	for i := range attributes {
		a := &attributes[i]
		write(a.Name)
		write(a.Type)
		if strings.HasPrefix(a.Type, "Binary") {
			h.Write([]byte{2})
			write(string(a.Binary))
		} else {
			h.Write([]byte{1})
			write(a.String)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Choose returns the attributes that a receive asks for: by name, All or .*, or
// by a prefix such as bar.*.
func Choose(all []Attribute, names []string) []Attribute {
	if len(all) == 0 || len(names) == 0 {
		return nil
	}
	var chosen []Attribute
	for _, a := range all {
		for _, name := range names {
			prefix, isPrefix := strings.CutSuffix(name, ".*")
			if name == "All" || name == a.Name || isPrefix && strings.HasPrefix(a.Name, prefix) {
				chosen = append(chosen, a)
				break
			}
		}
	}
	return chosen
}

// Value returns the attribute in the form of the JSON protocol.
func (a *Attribute) Value() api.AttributeValue {
	v := api.AttributeValue{DataType: &a.Type}
	if strings.HasPrefix(a.Type, "Binary") {
		text := base64.StdEncoding.EncodeToString(a.Binary)
		v.BinaryValue = &text
	} else {
		v.StringValue = &a.String
	}
	return v
}
