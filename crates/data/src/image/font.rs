//! A small bitmap font for labels in pictures: ASCII, five by seven pixels per character, and two rows of descenders. No crate with such a
//! font is needed for a hundred lines.

/// Height of a character, with descenders.
pub const HEIGHT: usize = 9;
/// Width of a character, with the gap to the next.
pub const ADVANCE: usize = 6;
const WIDTH: usize = 5;
const LETTERS_A_BLOCK: usize = 16;

/// Blocks of sixteen characters, from the space on; a `#` is a set pixel.
#[rustfmt::skip]
const BLOCKS: [[&str; HEIGHT]; 6] = [
    [
        "        #    # #   # #    #   ##     ##     #      #   #",
        "        #    # #   # #   #### ##  # #  #    #     #     #     #     #                         #",
        "        #    # #  ##### # #      #  # #    #     #       #  # # #   #                        #",
        "        #          # #   ###    #    #           #       #   ###  #####       #####         #",
        "        #         #####   # #  #    # # #        #       #  # # #   #                      #",
        "                   # #  ####  #  ## #  #          #     #     #     #     #          ##   #",
        "        #          # #    #      ##  ## #          #   #                  #          ##",
        "                                                                         #",
        "",
    ],
    [
        " ###    #    ###  #####    #  #####   ##  #####  ###   ###                 #         #     ###",
        "#   #  ##   #   #    #    ##  #      #        # #   # #   #  ##    ##     #           #   #   #",
        "#  ##   #       #   #    # #  ####  #        #  #   # #   #  ##    ##    #    #####    #      #",
        "# # #   #      #     #  #  #      # ####    #    ###   ####             #               #    #",
        "##  #   #     #       # #####     # #   #   #   #   #     #  ##    ##    #    #####    #    #",
        "#   #   #    #    #   #    #  #   # #   #   #   #   #    #   ##     #     #           #",
        " ###   ###  #####  ###     #   ###   ###    #    ###   ##          #       #         #      #",
        "",
        "",
    ],
    [
        " ###   ###  ####   ###  ###   ##### #####  ###  #   #  ###    ### #   # #     #   # #   #  ###",
        "#   # #   # #   # #   # #  #  #     #     #   # #   #   #      #  #  #  #     ## ## #   # #   #",
        "# ### #   # #   # #     #   # #     #     #     #   #   #      #  # #   #     # # # ##  # #   #",
        "# # # ##### ####  #     #   # ####  ####  # ### #####   #      #  ##    #     # # # # # # #   #",
        "# ### #   # #   # #     #   # #     #     #   # #   #   #      #  # #   #     #   # #  ## #   #",
        "#     #   # #   # #   # #  #  #     #     #   # #   #   #   #  #  #  #  #     #   # #   # #   #",
        " ###  #   # ####   ###  ###   ##### #      #### #   #  ###   ##   #   # ##### #   # #   #  ###",
        "",
        "",
    ],
    [
        "####   ###  ####   #### ##### #   # #   # #   # #   # #   # #####  ###         ###    #",
        "#   # #   # #   # #       #   #   # #   # #   # #   # #   #     #  #    #        #   # #",
        "#   # #   # #   # #       #   #   # #   # #   #  # #  #   #    #   #     #       #  #   #",
        "####  #   # ####   ###    #   #   # #   # # # #   #    # #    #    #      #      #",
        "#     # # # # #       #   #   #   # #   # # # #  # #    #    #     #       #     #",
        "#     #  #  #  #      #   #   #   #  # #  # # # #   #   #   #      #        #    #",
        "#      ## # #   # ####    #    ###    #    # #  #   #   #   #####  ###         ###        #####",
        "",
        "",
    ],
    [
        " #          #               #         ##        #       #      #  #      ##",
        "  #         #               #        #  #       #                 #       #",
        "   #   ###  # ##   ###   ## #  ###   #     #### # ##   ##     ##  #  #    #   ## #  # ##   ###",
        "          # ##  # #     #  ## #   # ###   #   # ##  #   #      #  # #     #   # # # ##  # #   #",
        "       #### #   # #     #   # #####  #    #   # #   #   #      #  ##      #   # # # #   # #   #",
        "      #   # #   # #   # #   # #      #    #   # #   #   #      #  # #     #   #   # #   # #   #",
        "       #### ####   ###   ####  ###   #     #### #   #  ###     #  #  #   ###  #   # #   #  ###",
        "                                              #             #  #",
        "                                           ###               ##",
    ],
    [
        "                         #                                           #    #    #",
        "                         #                                          #     #     #",
        "####   #### # ##   ###  ###   #   # #   # #   # #   # #   # #####   #     #     #    #",
        "#   # #   # ##  # #      #    #   # #   # #   #  # #  #   #    #   #      #      #  # # #",
        "#   # #   # #      ###   #    #   # #   # # # #   #   #   #   #     #     #     #      #",
        "#   # #   # #         #  #  # #  ##  # #  # # #  # #  #   #  #      #     #     #",
        "####   #### #     ####    ##   ## #   #    # #  #   #  #### #####    #    #    #",
        "#         #                                               #",
        "#         #                                            ###",
    ],
];

/// Width of a text at scale 1.
pub fn width(text: &str) -> usize {
    (text.chars().count() * ADVANCE).saturating_sub(ADVANCE - WIDTH)
}

/// Calls `ink` with row and column of each set pixel of a text at scale 1. Characters outside of ASCII become question marks.
pub fn draw(text: &str, mut ink: impl FnMut(usize, usize)) {
    for (place, letter) in text.chars().enumerate() {
        for row in 0..HEIGHT {
            for column in 0..WIDTH {
                if has_ink(letter, row, column) {
                    ink(row, place * ADVANCE + column);
                }
            }
        }
    }
}

fn has_ink(letter: char, row: usize, column: usize) -> bool {
    let letter = if (' '..='~').contains(&letter) { letter } else { '?' };
    let index = letter as usize - ' ' as usize;
    let line = BLOCKS[index / LETTERS_A_BLOCK][row].as_bytes();
    line.get(index % LETTERS_A_BLOCK * ADVANCE + column) == Some(&b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(text: &str) -> Vec<String> {
        let mut rows = vec![vec![' '; width(text)]; HEIGHT];
        draw(text, |row, column| rows[row][column] = '#');
        rows.into_iter().map(|row| row.into_iter().collect()).collect()
    }

    #[test]
    fn letters_lie_where_they_belong() {
        assert_eq!(rows_of("L")[6], "#####");
        assert_eq!(rows_of("LT")[0], "#     #####");
        // Seven rows above the baseline, and some descenders below it.
        assert_eq!(rows_of("!~0").iter().filter(|row| row.contains('#')).count(), HEIGHT - 2);
        assert_eq!(rows_of("p")[8], "#    ");
        assert_eq!(rows_of("0")[2], "#  ##");
        assert!(rows_of(" ").iter().all(|row| row == "     "));
        assert_eq!((width(""), width("a"), width("ab")), (0, 5, 11));
    }

    #[test]
    fn every_letter_has_a_shape_of_its_own() {
        let shapes: std::collections::BTreeSet<_> = (' '..='~').map(|letter| rows_of(&letter.to_string())).collect();
        assert_eq!(shapes.len(), 95);
        assert_eq!(rows_of("é"), rows_of("?"));
    }
}
