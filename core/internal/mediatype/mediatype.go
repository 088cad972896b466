// Package mediatype reads the header with a message's content type.
package mediatype

import "strings"

// Of returns the media type in lower case, without parameters: "Text/X; charset=utf-8" is "text/x".
func Of(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}
