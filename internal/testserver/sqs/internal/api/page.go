package api

import "encoding/base64"

// EncodeToken makes a token of the last item on a page.
func EncodeToken(last string) string { return base64.StdEncoding.EncodeToString([]byte(last)) }

// DecodeToken returns the item of which EncodeToken made a token, and whether it is one.
func DecodeToken(token string) (last string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(token)
	return string(raw), err == nil && len(raw) > 0
}
