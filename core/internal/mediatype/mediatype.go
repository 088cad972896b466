// Package mediatype reads the header with a message's content type.
package mediatype

import "strings"

const charsetKey = ";charset="

// Of returns the media type in lower case. Of the parameters it keeps a charset other than
// UTF-8: "Text/X; v=1; Charset=\"UTF-16\"" is "text/x;charset=utf-16".
func Of(contentType string) string {
	mediaType, parameters, more := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	for mediaType != "" && more {
		var parameter string
		parameter, parameters, more = strings.Cut(parameters, ";")
		key, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "charset") {
			continue
		}
		switch charset := strings.ToLower(strings.Trim(value, " \t\"'")); charset {
		case "", "utf-8", "utf8", "us-ascii", "ascii":
		default:
			return mediaType + charsetKey + charset
		}
		break
	}
	return mediaType
}

// Split returns the parts of a result of [Of]; the charset is "" for UTF-8.
func Split(contentType string) (mediaType, charset string) {
	mediaType, charset, _ = strings.Cut(contentType, charsetKey)
	return mediaType, charset
}
