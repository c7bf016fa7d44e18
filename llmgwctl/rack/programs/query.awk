# Columns of a table of fields, as nvidia-smi --query-*=FIELDS --format=csv[,noheader][,nounits] prints them.
# Variables: fields, format. Input: a line of field names (with their units), then a line for each row, tabs between.
BEGIN { FS = "\t"; count = split(fields, wanted, ",") }
function plain(name) { sub(/ \[.*/, "", name); return name }
function bare(value) {
    if (format ~ /nounits/ && value ~ /^[0-9.]+ (MiB|W|%)$/) sub(/ .*/, "", value)
    return value
}
NR == 1 {
    for (i = 1; i <= NF; i++) { column[plain($i)] = i; title[plain($i)] = $i }
    for (i = 1; i <= count; i++) {
        gsub(/^ +| +$/, "", wanted[i])
        if (!(wanted[i] in column)) {
            printf "Field \"%s\" is not a valid field to query.\n\n", wanted[i]
            exit 2
        }
        head = head (i > 1 ? ", " : "") title[wanted[i]]
    }
    if (format !~ /noheader/) print head
    next
}
{
    line = ""
    for (i = 1; i <= count; i++) line = line (i > 1 ? ", " : "") bare($column[wanted[i]])
    print line
}
