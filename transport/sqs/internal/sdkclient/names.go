package sdkclient

import (
	"net/url"
	"regexp"
)

// The SDK shows the endpoint of a request, and a wrong region, in its errors. In another form
// than these they may be, or have, a secret.
var (
	regions   = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)
	endpoints = regexp.MustCompile(`^(?i:https?)://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?$`)
)

// IsRegion reports whether a text can be the name of a region.
func IsRegion(text string) bool { return regions.MatchString(text) }

// ShownRegion returns the name of a region, or a text that stands for one that is no name.
func ShownRegion(text string) string {
	if text != "" && !IsRegion(text) {
		return "(not shown)"
	}
	return text
}

// EndpointURL returns the URL of an endpoint, or nil if the text is none, or has other parts than
// scheme, host, port and path.
func EndpointURL(text string) *url.URL {
	if !endpoints.MatchString(text) {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return u
}
