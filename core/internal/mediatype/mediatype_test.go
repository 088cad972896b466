package mediatype

import "testing"

func TestOf(t *testing.T) {
	for contentType, want := range map[string]string{
		"": "", "text/x": "text/x", " Text/X ": "text/x", "text/x; charset=utf-8": "text/x", "text/x ;": "text/x", "; a=b": "",
		"text/x;charset=UTF-16":                  "text/x;charset=utf-16",
		"text/x; v=1; Charset = \"ISO-8859-1\" ": "text/x;charset=iso-8859-1",
		"text/x; v=1;charset=UTF8":               "text/x",
		"text/x;charset":                         "text/x",
		"text/x;charset=us-ascii;charset=utf-16": "text/x",
		";charset=utf-16":                        "",
		"text/x;;;":                              "text/x",
	} {
		got := Of(contentType)
		if got != want {
			t.Errorf("%q is %q, want %q", contentType, got, want)
		}
		if mediaType, charset := Split(got); charset == "" && mediaType != got || charset != "" && mediaType+charsetKey+charset != got {
			t.Errorf("%q is split into %q and %q", got, mediaType, charset)
		}
	}
}
