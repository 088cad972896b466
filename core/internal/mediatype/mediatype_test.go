package mediatype

import "testing"

func TestOf(t *testing.T) {
	for contentType, want := range map[string]string{
		"": "", "text/x": "text/x", " Text/X ": "text/x", "text/x; charset=utf-8": "text/x", "text/x ;": "text/x", "; a=b": "",
	} {
		if got := Of(contentType); got != want {
			t.Errorf("%q is %q, want %q", contentType, got, want)
		}
	}
}
