package transport_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/planted"
	"github.com/reprise-go/reprise/transport"
)

func TestReadURL(t *testing.T) {
	t.Parallel()
	const begin = "amqp:// or amqps://"
	for text, want := range map[string]string{
		"":                               "URLs[0] is no URL: begin it with " + begin,
		"app:hunter2@h":                  "URLs[0] is no URL: begin it with " + begin,
		"amqp://app:hunter2@h ":          "URLs[0] begins or ends with a space",
		"amqp://app:hun\nter2@h":         "URLs[0] is no URL: there is a control character in it",
		"amqp://app:hun%ter2@h":          "URLs[0] is no URL: a % is not followed by two hexadecimal digits",
		"amqp://app:hun/ter2@h":          "URLs[0] is no URL: the text after the colon behind the host is no port",
		"amqp://app:12/hunter2@h":        "URLs[0] has been split in the wrong place",
		"amqp://app:hunter2@h/#":         "URLs[0] has been split in the wrong place",
		"amqp://app:hun@12/ter2@h":       "URLs[0] has been split in the wrong place",
		"amqp://app:hun@12?ter2@h":       "URLs[0] has been split in the wrong place",
		"amqp://app:12?a=hunter2@h":      "URLs[0] has been split in the wrong place",
		"amqp://?password=hun@ter2":      "URLs[0] has been split in the wrong place",
		"amqp:///hun@ter2":               "URLs[0] has been split in the wrong place",
		"amqp:///a?user=app@cloud":       "",
		"amqp://app:hun@ter2@h/a%40b":    "",
		"amqp://app:hunter2@h/#x":        "URLs[0] has been split in the wrong place",
		"amqp://app:hunter2@h:0":         `URLs[0]: the port in "h:0" is not a number from 1 to 65535`,
		"amqp://12:99999/":               "URLs[0]: a port is not a number from 1 to 65535",
		"amqp://app:hunter2@h?a=hun%ter": "URLs[0]: in its options a % is not followed",
		"amqp://app:hunter2@h?a=1;b=2":   "URLs[0]: options are separated by &, and a ; in a value is written as %3B",
		"amqp://app:hunter2@h:1/a?b=c":   "",
	} {
		u, err := transport.ReadURL("URLs[0]", text, begin)
		if want == "" {
			if err != nil || u == nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
			continue
		}
		for _, secret := range []string{"hun", "ter2"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v has a part of the password in it", text, err)
			}
		}
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	read := func(text string) (*url.URL, error) { return transport.ReadURL("Config.URL", text, "amqp://") }
	for text, want := range map[string]string{
		"":                          "",
		"amqp://app:hunter2@h:1/":   "amqp://app@h:1/",
		"amqp://h/a%2Fb?password=x": "amqp://h/a/b",
		"amqp://":                   "amqp:",
		"amqp://app:hunt#er2@h:1/":  "(a URL that cannot be read)",
		"app:hunter2@h:1":           "(a URL that cannot be read)",
		"amqp://app:hunter%2@h:1/?": "(a URL that cannot be read)",
	} {
		if got := transport.RedactURL(text, read); got != want {
			t.Errorf("%s is shown as %q, want %q", text, got, want)
		}
	}
}

// FuzzSecretsInURLs plants a secret where people write passwords into URLs, and looks for it
// in what is said of the URL. Where the URL is read, its host is the one that was meant.
func FuzzSecretsInURLs(f *testing.F) {
	for _, odd := range planted.Oddities() {
		f.Add(odd)
	}
	f.Fuzz(func(t *testing.T, odd string) {
		for _, place := range []string{"amqp://app:%s@h:1/vhost", "amqp://:%s@h:1", "amqp://app:%s@h:1/vhost?a=b", "app:%s@h", "amqp:app:%s@h:1"} {
			for _, form := range planted.Forms(planted.Secret(odd)) {
				text := fmt.Sprintf(place, form)
				u, err := transport.ReadURL("Config.URL", text, "amqp://")
				if err != nil {
					planted.Check(t, place, err)
				} else if u.Host != "h:1" {
					t.Errorf("%q has the host %q", text, u.Host)
				}
				planted.Check(t, place+": RedactURL", transport.RedactURL(text, func(text string) (*url.URL, error) {
					return transport.ReadURL("", text, "")
				}))
			}
		}
	})
}
