package rabbitmq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/planted"
)

// FuzzReadURL plants a secret into URLs, and looks for it in the errors and in the host as
// it is shown. Where a URL is read, the client library finds the same parts in it.
func FuzzReadURL(f *testing.F) {
	for _, odd := range planted.Oddities() {
		f.Add("app", odd, "vhost", "heartbeat=5&connection_timeout=1000")
		f.Add("", odd, odd, "auth_mechanism="+odd)
		f.Add("app", "", "%2F", odd+"=1")
	}
	f.Fuzz(func(t *testing.T, user, odd, vhost, options string) {
		user = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return r
			}
			return 'u'
		}, user)
		for _, form := range planted.Forms(planted.Secret(odd)) {
			text := fmt.Sprintf("amqp://%s:%s@127.0.0.1:1/%s?%s", user, form, vhost, options)
			h, err := new(Config).readURL("Config.URLs[0]", text)
			planted.Check(t, "redacted", redacted(text))
			if err != nil {
				planted.Check(t, "readURL", err)
				continue
			}
			planted.Check(t, "host", []any{h, &h})
			u, err := splitURL("", text)
			if err != nil {
				t.Fatalf("%q is read, but not split: %v", text, err)
			}
			password, _ := u.User.Password()
			if h.addr != "127.0.0.1:1" || h.uri.Username != user || h.uri.Password != password || h.heartbeat <= 0 || h.timeout <= 0 || len(h.uri.Vhost) > 255 {
				t.Errorf("the client library finds %s, user %q, and password %q in %q", h.addr, h.uri.Username, h.uri.Password, text)
			}
		}
	})
}
