/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges NVIDIA_REQUIRE_* by the rules of libnvidia-container, written without regard to gpuhook's
 * code. Each line of standard input has six fields between tabs: 1 if the container has a GPU, the
 * facts cuda, driver, arch and brand ("" is unknown), and the text. The answer to each is a line:
 * met, unmet or invalid.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NO = 0, YES = 1, BAD = -1 };

static const char *fact[4];
static const char *const names[4] = {"cuda", "driver", "arch", "brand"};
static int has_gpu;

/* Compare two versions: -1, 0, 1, or 2 if a part is empty or too large. */
static int order(const char *a, const char *b)
{
    while (*a && *b) {
        char *a_end, *b_end;
        uintmax_t x = strtoumax(a, &a_end, 10), y = strtoumax(b, &b_end, 10);

        if (x == UINTMAX_MAX || y == UINTMAX_MAX || a_end == a || b_end == b)
            return 2;
        if (x != y)
            return x < y ? -1 : 1;
        for (a = a_end; *a == '.'; a++)
            ;
        for (b = b_end; *b == '.'; b++)
            ;
    }
    a += strspn(a, "0.");
    b += strspn(b, "0.");
    return (*a != 0) - (*b != 0);
}

static int holds(const char *op, int by)
{
    if (!strcmp(op, "="))
        return by == 0;
    if (!strcmp(op, "!="))
        return by != 0;
    if (op[0] == '<')
        return by < 0 || (op[1] && by == 0);
    return by > 0 || (op[1] && by == 0);
}

static int term(const char *text)
{
    char name[65536], op[65536];
    size_t to_sign = strcspn(text, "<>=!"), signs = strspn(text + to_sign, "<>=!");
    const char *operand = text + to_sign + signs;
    int which, by;

    snprintf(name, sizeof(name), "%.*s", (int)to_sign, text);
    snprintf(op, sizeof(op), "%.*s", (int)signs, text + to_sign);
    if (!strcmp(op, "!"))
        strcpy(op, "!=");
    if (!*name || !*operand || strlen(op) > 2 || !strstr("= != < <= > >=", op) || !*op ||
        strchr(op, ' ') || !strcmp(op, "=="))
        return BAD;
    for (which = 0; which < 4 && strcasecmp(name, names[which]); which++)
        ;
    if (which == 4)
        return BAD;
    if (which >= 2 && !has_gpu)
        return YES;
    if (!*fact[which])
        return YES;
    if (which == 3) {
        if (strcmp(op, "=") && strcmp(op, "!="))
            return BAD;
        by = !!strcasecmp(fact[which], operand);
    } else {
        if (strspn(operand, "0123456789.") != strlen(operand))
            return BAD;
        by = order(fact[which], operand);
        if (by == 2)
            return BAD;
    }
    if (holds(op, by))
        return YES;
    /* The error message has 128 bytes, and what does not fit is invalid. */
    return strlen(name) + strlen(op) + strlen(operand) + 2 >= 128 ? BAD : NO;
}

static const char *judge(char *text)
{
    int last = YES;
    char *alternative;

    while ((alternative = strsep(&text, " "))) {
        char *one;
        int failed = 0;

        if (!*alternative)
            continue;
        while (!failed && (one = strsep(&alternative, ","))) {
            if (!*one)
                continue;
            last = term(one);
            if (last == BAD)
                return "invalid";
            failed = last == NO;
        }
        if (!failed)
            break;
    }
    return last ? "met" : "unmet";
}

int main(void)
{
    static char line[1 << 20];

    while (fgets(line, sizeof(line), stdin)) {
        char *rest = line;

        line[strcspn(line, "\n")] = 0;
        has_gpu = *strsep(&rest, "\t") == '1';
        for (int i = 0; i < 4; i++)
            fact[i] = strsep(&rest, "\t");
        puts(judge(rest));
        fflush(stdout);
    }
    return 0;
}
